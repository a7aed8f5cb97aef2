;; Traps of atomic instructions on a memory that is not shared.
(module
  (memory 1)
  (func (export "heap_misaligned") (drop (i32.atomic.load (i32.const 1))))
  (func (export "atomic_wait_non_shared_memory")
    (drop (memory.atomic.wait32 (i32.const 0) (i32.const 0) (i64.const 0)))))
