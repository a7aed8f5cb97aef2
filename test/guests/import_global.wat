;; Imports a global, which nobody can give.
(module (import "env" "global" (global i32)) (func (export "init")))
