;; A memory with a segment, to be looked at and changed from both sides.
(module
  (memory (export "memory") 2 1000)
  (data (i32.const 16) "image")
  (data (i32.const 65530) "straddle")
  (global $count (mut i32) (i32.const 0))
  (func (export "load") (param i32) (result i32) (i32.load8_u (local.get 0)))
  (func (export "store") (param i32 i32) (i32.store8 (local.get 0) (local.get 1)))
  (func (export "fill") (param i32 i32 i32)
    (memory.fill (local.get 0) (local.get 1) (local.get 2)))
  (func (export "copy") (param i32 i32 i32)
    (memory.copy (local.get 0) (local.get 1) (local.get 2)))
  (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0)))
  (func (export "count") (result i32)
    (global.set $count (i32.add (global.get $count) (i32.const 1)))
    (global.get $count))
  ;; The offset of the first word from $from to $to that is not zero, or -1.
  (func (export "first_foreign") (param $from i32) (param $to i32) (result i32)
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $from) (local.get $to)))
        (if (i64.ne (i64.load (local.get $from)) (i64.const 0)) (then (return (local.get $from))))
        (local.set $from (i32.add (local.get $from) (i32.const 8)))
        (br $next)))
    (i32.const -1)))
