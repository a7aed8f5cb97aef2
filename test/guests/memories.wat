;; Two memories, neither named memory.
(module
  (memory (export "first") 1)
  (memory (export "second") 2)
  (data (memory 0) (i32.const 0) "one")
  (data (memory 1) (i32.const 0) "two"))
