;; What the operations are measured with: a function, a page of memory and a few bytes in it.
(module
  (memory (export "memory") 1)
  (data (i32.const 0) "hello")
  (func (export "add") (param i32 i32) (result i32)
    (i32.add (local.get 0) (local.get 1))))
