;; What servers and pools are tested with: state, an endless loop, a trap, a question to the host, and
;; a version that a test may change.
(module
  (import "env" "ask" (func $ask (param i32) (result i32)))
  (memory (export "memory") 1)
  (global $count (mut i32) (i32.const 0))
  (func (export "count") (result i32)
    (global.set $count (i32.add (global.get $count) (i32.const 1)))
    (global.get $count))
  (func (export "ask") (param i32) (result i32) (call $ask (local.get 0)))
  (func (export "spin") (loop $again (br $again)))
  (func (export "trap") unreachable)
  (func (export "version") (result i32) (i32.const 1001)))
