;; Messages of a memory of 64 bits.
(module
  (import "erlang" "send" (func $send (param i64 i64)))
  (import "erlang" "recv" (func $recv (param i64 i64) (result i64)))
  (memory (export "memory") i64 1)
  (func (export "echo") (param i64 i64) (result i64)
    (local $length i64)
    (local.set $length (call $recv (local.get 0) (local.get 1)))
    (if (i64.ge_s (local.get $length) (i64.const 0))
      (then (call $send (local.get 0) (local.get $length))))
    (local.get $length)))
