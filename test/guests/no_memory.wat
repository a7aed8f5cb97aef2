;; Exports nothing but a function, though it has a memory.
(module (memory 1) (func (export "nop")))
