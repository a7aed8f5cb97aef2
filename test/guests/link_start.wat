;; A start section that asks the host for a number, waits for it, and writes it down for others.
(module $start
  (import "env" "one" (func $one (param i32) (result i32)))
  (memory (export "memory") 1)
  (global $at (mut i32) (i32.const 0))
  (func (export "log") (param i32)
    (i32.store8 (global.get $at) (local.get 0))
    (global.set $at (i32.add (global.get $at) (i32.const 1))))
  (func $run
    (drop (memory.grow (i32.const 2)))
    (i32.store8 (i32.const 0) (call $one (i32.const 1)))
    (global.set $at (i32.const 1)))
  (start $run))
