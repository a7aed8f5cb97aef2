;; Uses up the heap of garbage-collected objects, makes deep and round structures, and casts them.
(module
  (type $node (struct (field (mut (ref null $node))) (field (mut i64))))
  (type $other (struct (field (mut f64)) (field f64) (field f64)))
  (type $array (array (mut i64)))
  (type $refs (array (mut (ref null $node))))
  (global $kept (mut (ref null $node)) (ref.null $node))
  (func (export "ok") (result i32) (i32.const 1))
  ;; A list that is kept, without an end.
  (func (export "keep_all")
    (loop $again
      (global.set $kept (struct.new $node (global.get $kept) (i64.const 1)))
      (br $again)))
  (func (export "forget") (global.set $kept (ref.null $node)))
  ;; As many objects, but none is kept: the collector has to do with it.
  (func (export "garbage") (param $n i32) (result i32)
    (loop $again
      (drop (struct.new $node (ref.null $node) (i64.const 1)))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (br_if $again (local.get $n)))
    (i32.const 1))
  ;; Rings, which counting references alone would never free.
  (func (export "rings") (param $n i32) (result i32)
    (local $a (ref null $node)) (local $b (ref null $node))
    (loop $again
      (local.set $a (struct.new $node (ref.null $node) (i64.const 1)))
      (local.set $b (struct.new $node (local.get $a) (i64.const 2)))
      (struct.set $node 0 (local.get $a) (local.get $b))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (br_if $again (local.get $n)))
    (i32.const 1))
  ;; A list of n nodes: how long it is when it is walked.
  (func (export "deep") (param $n i32) (result i32)
    (local $at (ref null $node)) (local $length i32)
    (global.set $kept (ref.null $node))
    (loop $again
      (global.set $kept (struct.new $node (global.get $kept) (i64.const 1)))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (br_if $again (local.get $n)))
    (local.set $at (global.get $kept))
    (loop $next
      (local.set $length (i32.add (local.get $length) (i32.const 1)))
      (local.set $at (struct.get $node 0 (local.get $at)))
      (br_if $next (i32.eqz (ref.is_null (local.get $at)))))
    (local.get $length))
  (func (export "array") (param i32) (result i32)
    (array.len (array.new_default $array (local.get 0))))
  (func (export "arrays_for_ever")
    (loop $again (drop (array.new_default $array (i32.const 100000))) (br $again)))
  (func (export "array_fill") (param i32 i32)
    (array.fill $array (array.new_default $array (i32.const 10))
      (local.get 0) (i64.const 1) (local.get 1)))
  (func (export "array_copy") (param i32 i32 i32)
    (array.copy $array $array
      (array.new_default $array (i32.const 10)) (local.get 0)
      (array.new_default $array (i32.const 10)) (local.get 1) (local.get 2)))
  (func (export "array_get") (param i32) (result i64)
    (array.get $array (array.new_default $array (i32.const 10)) (local.get 0)))
  ;; Casts of what it is, of what it is not, of null, of i31, for ever.
  (func (export "cast") (param $what i32)
    (local $any (ref null any))
    (if (i32.eq (local.get $what) (i32.const 0))
      (then (local.set $any (struct.new $node (ref.null $node) (i64.const 0)))))
    (if (i32.eq (local.get $what) (i32.const 1))
      (then (local.set $any (struct.new $other (f64.const 0) (f64.const 0) (f64.const 0)))))
    (if (i32.eq (local.get $what) (i32.const 2))
      (then (local.set $any (ref.i31 (i32.const -1)))))
    (if (i32.eq (local.get $what) (i32.const 3))
      (then (local.set $any (array.new_default $array (i32.const 1)))))
    (drop (struct.get $node 1 (ref.cast (ref null $node) (local.get $any)))))
  (func (export "casts_for_ever")
    (loop $again
      (drop (ref.test (ref $node) (struct.new $other (f64.const 0) (f64.const 0) (f64.const 0))))
      (br $again))))
