;; The start section writes.
(module
  (memory (export "memory") 1)
  (func $start (i32.store8 (i32.const 8) (i32.const 42)))
  (start $start))
