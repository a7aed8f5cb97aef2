;; Sends and receives messages; echoes them until the inbox is closed.
(module
  (import "erlang" "send" (func $send (param i32 i32)))
  (import "erlang" "recv" (func $recv (param i32 i32) (result i32)))
  (import "env" "host" (func $host))
  (memory (export "memory") 2 512)
  (func (export "send") (param i32 i32)
    (call $send (local.get 0) (local.get 1)))
  (func (export "recv") (param i32 i32) (result i32)
    (call $recv (local.get 0) (local.get 1)))
  (func (export "grow") (param i32) (result i32)
    (memory.grow (local.get 0)))
  ;; The host is asked first, which may send.
  (func (export "ask_recv") (param i32 i32) (result i32)
    (call $host)
    (call $recv (local.get 0) (local.get 1)))
  ;; How many messages it sent back.
  (func (export "echo") (result i32)
    (local $count i32) (local $length i32)
    (loop $next
      (local.set $length (call $recv (i32.const 0) (i32.const 65536)))
      (if (i32.eq (local.get $length) (i32.const -1))
        (then (return (local.get $count))))
      (if (i32.lt_s (local.get $length) (i32.const 0))
        (then (unreachable)))
      (call $send (i32.const 0) (local.get $length))
      (local.set $count (i32.add (local.get $count) (i32.const 1)))
      (br $next))
    (unreachable))
  ;; Sends the numbers from 0 on, each as four bytes.
  (func (export "count") (param $numbers i32)
    (local $number i32)
    (loop $next
      (i32.store (i32.const 0) (local.get $number))
      (call $send (i32.const 0) (i32.const 4))
      (local.set $number (i32.add (local.get $number) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $number) (local.get $numbers))))))
