;; Traps of garbage-collected objects.
(module
  (type $struct (struct (field i32)))
  (type $array (array (mut i64)))
  (func (export "null_reference")
    (drop (struct.get $struct 0 (ref.null $struct))))
  (func (export "array_out_of_bounds")
    (drop (array.get $array (array.new_default $array (i32.const 2)) (i32.const 2))))
  (func (export "allocation_too_large")
    (drop (array.new_default $array (i32.const -1))))
  (func (export "cast_failure")
    (drop (ref.cast (ref $struct) (ref.i31 (i32.const 1))))))
