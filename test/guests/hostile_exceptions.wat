;; Throws through its host, and tries to catch what is no exception.
(module
  (import "env" "host" (func $host (param i32) (result i32)))
  (tag $tag (param i32))
  (func (export "ok") (result i32) (i32.const 1))
  (func $throw (export "throw") (param i32) (result i32) (throw $tag (local.get 0)))
  (func (export "host") (param i32) (result i32) (call $host (local.get 0)))
  ;; Catches everything that comes out of a call of the host.
  (func (export "catch_host") (param i32) (result i32)
    (block $caught
      (try_table (catch_all $caught) (return (call $host (local.get 0)))))
    (i32.const -1))
  (func $trap (result i32) unreachable)
  (func $deep (result i32) (i32.add (call $deep) (i32.const 1)))
  (func $spin (loop $again (br $again)))
  (func (export "catch_trap") (result i32)
    (block $caught (try_table (catch_all $caught) (return (call $trap)))) (i32.const -1))
  (func (export "catch_overflow") (result i32)
    (block $caught (try_table (catch_all $caught) (return (call $deep)))) (i32.const -1))
  (func (export "catch_timeout") (result i32)
    (block $caught (try_table (catch_all $caught) (call $spin))) (i32.const -1))
  ;; Throws and catches n times.
  (func (export "storm") (param $n i32) (result i32)
    (loop $again
      (block $caught
        (try_table (catch_all $caught) (drop (call $throw (local.get $n)))))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (br_if $again (local.get $n)))
    (i32.const 1))
  ;; Throws from n frames below, with a try in each of them.
  (func $nest (export "nest") (param $n i32) (result i32)
    (block $caught
      (try_table (catch_all $caught)
        (if (local.get $n)
          (then (drop (call $nest (i32.sub (local.get $n) (i32.const 1))))))
        (throw $tag (i32.const 0))))
    (local.get $n)))
