/* First on the include path while CPython is compiled: see config.site. */
#error "CPython's own pthread stubs are to be used"
