;; Calls WASI for results in a memory that it does not export.
(module
  (import "wasi_snapshot_preview1" "args_sizes_get"
    (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get"
    (func $random_get (param i32 i32) (result i32)))
  (memory 1)
  (func (export "sizes") (result i32) (call $args_sizes_get (i32.const 0) (i32.const 4)))
  (func (export "random") (result i32) (call $random_get (i32.const 0) (i32.const 4))))
