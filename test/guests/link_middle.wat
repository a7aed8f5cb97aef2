;; A link that has a memory of its own and builds on another link.
(module $middle
  (import "base" "double" (func $double (param i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "middle")
  (global (export "offset") i32 (i32.const 100))
  (func (export "quad") (param i32) (result i32)
    (call $double (call $double (local.get 0))))
  (func (export "load") (param i32) (result i32) (i32.load8_u (local.get 0)))
  (func (export "store") (param i32 i32) (i32.store8 (local.get 0) (local.get 1))))
