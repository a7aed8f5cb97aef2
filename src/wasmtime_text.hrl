%% What wasmtime_text takes for a name or a path, in the words of the messages that refuse others.
-define(TEXT, "text (iodata of UTF-8, or characters) without NUL").
