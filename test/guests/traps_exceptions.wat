;; An exception that nobody catches.
(module
  (tag $tag)
  (func (export "uncaught_exception") (throw $tag)))
