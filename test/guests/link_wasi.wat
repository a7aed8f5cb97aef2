;; Writes to standard output by a link, from the memory of the link.
(module $wasi
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (import "env" "one" (func $one (param i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\08\00\00\00\05\00\00\00hello")
  (func (export "hello") (result i32)
    (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 100)))
  (func (export "one") (param i32) (result i32) (call $one (local.get 0)))
  (func (export "exit") (param i32) (call $exit (local.get 0))))
