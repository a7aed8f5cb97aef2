;; Calls the host in several ways.
(module
  (import "env" "one" (func $one (param i32) (result i32)))
  (import "env" "swap" (func $swap (param i32 f64) (result f64 i32)))
  (import "env" "none" (func $none))
  (memory (export "memory") 1)
  (global $calls (mut i32) (i32.const 0))
  (func (export "one") (param i32) (result i32) (call $one (local.get 0)))
  (func (export "swap") (param i32 f64) (result f64 i32)
    (call $swap (local.get 0) (local.get 1)))
  (func (export "none") (call $none))
  (func (export "double") (param i32) (result i32)
    (i32.mul (local.get 0) (i32.const 2)))
  ;; Calls one(0), one(1) ... n times and sums what comes back.
  (func (export "sum") (param $n i32) (result i32)
    (local $i i32) (local $sum i32)
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $i) (local.get $n)))
        (local.set $sum (i32.add (local.get $sum) (call $one (local.get $i))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $next)))
    (local.get $sum)))
