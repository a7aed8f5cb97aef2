;; A start section that never ends.
(module
  (memory (export "memory") 1)
  (func $loop (loop $again (br $again)))
  (start $loop)
  (func (export "ok") (result i32) (i32.const 1)))
