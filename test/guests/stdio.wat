;; A program that reads standard input and writes standard output, as one call.
(module
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read"
    (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "erlang" "recv" (func $recv (param i32 i32) (result i32)))
  (memory (export "memory") 4)
  (data (i32.const 1024) "name?\n")
  ;; Writes bytes of the memory to a descriptor; traps unless all went.
  (func $write (export "write") (param $fd i32) (param $at i32) (param $length i32)
    (i32.store (i32.const 0) (local.get $at))
    (i32.store (i32.const 4) (local.get $length))
    (if (call $fd_write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))
      (then (unreachable)))
    (if (i32.ne (i32.load (i32.const 8)) (local.get $length))
      (then (unreachable))))
  ;; Reads into the memory: how much, 0 at the end.
  (func $read (export "read") (param $at i32) (param $length i32) (result i32)
    (i32.store (i32.const 0) (local.get $at))
    (i32.store (i32.const 4) (local.get $length))
    (if (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8))
      (then (unreachable)))
    (i32.load (i32.const 8)))
  (func (export "recv") (param i32 i32) (result i32)
    (call $recv (local.get 0) (local.get 1)))
  ;; Asks for a name and reads it.
  (func (export "prompt") (result i32)
    (call $write (i32.const 1) (i32.const 1024) (i32.const 6))
    (call $read (i32.const 2048) (i32.const 100)))
  ;; Copies all of the input to the output: how much there was.
  (func (export "cat") (result i32)
    (local $total i32) (local $length i32)
    (loop $next
      (local.set $length (call $read (i32.const 65536) (i32.const 100000)))
      (if (i32.eqz (local.get $length))
        (then (return (local.get $total))))
      (call $write (i32.const 1) (i32.const 65536) (local.get $length))
      (local.set $total (i32.add (local.get $total) (local.get $length)))
      (br $next))
    (unreachable))
  ;; Writes single bytes to the output and to the error output in turns.
  (func (export "both") (param $count i32)
    (loop $next
      (i32.store8 (i32.const 1000) (local.get $count))
      (call $write (i32.const 1) (i32.const 1000) (i32.const 1))
      (call $write (i32.const 2) (i32.const 1000) (i32.const 1))
      (local.set $count (i32.sub (local.get $count) (i32.const 1)))
      (br_if $next (local.get $count)))))
