;; What the specification's tests may import where they import a shared memory.
(module
  (memory (export "shared_memory") 1 2 shared))
