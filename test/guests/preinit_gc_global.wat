;; A mutable global of a reference type.
(module (global (mut externref) (ref.null extern)) (func (export "init")))
