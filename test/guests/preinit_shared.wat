;; A shared memory.
(module (memory 1 1 shared) (func (export "init")))
