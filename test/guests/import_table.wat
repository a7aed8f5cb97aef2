;; Imports a table, which nobody can give.
(module (import "env" "table" (table 1 funcref)) (func (export "init")))
