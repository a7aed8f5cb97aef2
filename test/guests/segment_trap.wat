;; An active segment that does not fit.
(module (memory 1) (data (i32.const 65535) "no room"))
