;; A set-up that leaves its mark: `set` and `put` change what `get` tells.
(module
  (memory (export "memory") 1)
  (global $value (mut i32) (i32.const 0))
  (func (export "set") (global.set $value (i32.const 7)))
  (func (export "put") (param i32) (global.set $value (local.get 0)))
  (func (export "get") (result i32) (global.get $value)))
