;; Says that it is up while it is being made.
(module
  (import "erlang" "send" (func $send (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "up")
  (func $start (call $send (i32.const 0) (i32.const 2)))
  (start $start))
