;; The start section traps.
(module (func $start unreachable) (start $start))
