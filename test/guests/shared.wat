;; Two shared memories that may grow far, and an ordinary one.
(module
  (memory $a (export "memory") 1 8 shared)
  (memory $b (export "other") 1 4 shared)
  (memory $own (export "own") 1)
  (data (memory $a) (i32.const 3) "shared")
  (func (export "grow") (param i32) (result i32) (memory.grow $a (local.get 0)))
  (func (export "grow_own") (param i32) (result i32) (memory.grow $own (local.get 0)))
  (func (export "load") (param i32) (result i32) (i32.load8_u $a (local.get 0))))
