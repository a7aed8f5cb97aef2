;; Imports a memory, which nobody can give.
(module (import "env" "memory" (memory 1)) (func (export "init")))
