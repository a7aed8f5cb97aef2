;; An init that keeps a reference of the host in a table.
(module
  (import "env" "one" (func $one (param i32) (result i32)))
  (table $t 1 funcref)
  (elem declare func $one)
  (func (export "init") (table.set $t (i32.const 0) (ref.func $one))))
