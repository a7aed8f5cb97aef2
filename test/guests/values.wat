;; Gives back what it was given, of every type.
(module
  (func (export "i32") (param i32) (result i32) (local.get 0))
  (func (export "i64") (param i64) (result i64) (local.get 0))
  (func (export "f32") (param f32) (result f32) (local.get 0))
  (func (export "f64") (param f64) (result f64) (local.get 0))
  (func (export "v128") (param v128) (result v128) (local.get 0))
  (func (export "none"))
  (func (export "all") (param i32 i64 f32 f64 v128) (result v128 f64 f32 i64 i32)
    (local.get 4) (local.get 3) (local.get 2) (local.get 1) (local.get 0))
  (func (export "naïve") (result i32) (i32.const 7))
  (memory (export "memory") 1)
  (global (export "global") i32 (i32.const 1)))
