;; Runs for ever; needs nothing.
(module
  (memory (export "memory") 1)
  (func (export "spin") (loop $again (br $again)))
  (func (export "ok") (result i32) (i32.const 1)))
