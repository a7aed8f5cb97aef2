;; An init that keeps a reference in a table that is no function of the module.
(module
  (table $t 1 externref)
  (func (export "init")
    (table.set $t (i32.const 0) (extern.convert_any (ref.i31 (i32.const 1))))))
