;; An export with a name that pre-initialization keeps for itself.
(module (func (export "__wasmtime_preinit_x")) (func (export "init")))
