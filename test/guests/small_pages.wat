;; A memory of usual pages and one of pages of a byte; growth of either.
(module
  (memory (export "memory") 1)
  (memory $small (export "small") 1 (pagesize 1))
  (func (export "grow") (param i32) (result i32) (memory.grow 0 (local.get 0)))
  (func (export "grow_small") (param i32) (result i32) (memory.grow $small (local.get 0))))
