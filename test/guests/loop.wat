;; Runs for ever, in wasm alone or through the host.
(module
  (import "env" "tick" (func $tick))
  (memory (export "memory") 1)
  (func (export "spin") (loop $again (br $again)))
  (func (export "tick") (loop $again (call $tick) (br $again)))
  (func (export "tick_once") (call $tick))
  (func (export "ok") (result i32) (i32.const 1)))
