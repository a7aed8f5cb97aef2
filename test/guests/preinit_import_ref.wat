;; An init that puts an imported function into a table.
(module
  (import "env" "one" (func $one (param i32) (result i32)))
  (type $one_type (func (param i32) (result i32)))
  (table $t 1 funcref)
  (elem declare func $one)
  (func (export "init") (table.set $t (i32.const 0) (ref.func $one)))
  (func (export "call") (param i32) (result i32)
    (call_indirect $t (type $one_type) (local.get 0) (i32.const 0))))
