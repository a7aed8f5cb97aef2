;; Tables beyond what a test allows, and growth of one.
(module
  (table $one 10 funcref)
  (table $two 10 funcref)
  (func (export "grow") (param i32) (result i32)
    (table.grow $one (ref.null func) (local.get 0))))
