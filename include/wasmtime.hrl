%% Patterns for errors by class and kind: they match, they do not build.
-ifndef(WASMTIME_HRL).
-define(WASMTIME_HRL, true).

%% case wasmtime:call(Inst, <<"run">>, []) of
%%     {ok, Values} -> Values;
%%     ?WASMTIME_TRAP(timeout) -> too_slow;
%%     ?WASMTIME_ERROR(host, host_error, Message) -> Message
%% end

%% Any error of a class and kind; use _ to match all of either.
-define(WASMTIME_ERROR(Class, Kind), {error, #{class := Class, kind := Kind}}).
%% The same, with its message.
-define(WASMTIME_ERROR(Class, Kind, Message),
    {error, #{class := Class, kind := Kind, message := Message}}).
%% A trap of a kind.
-define(WASMTIME_TRAP(Kind), ?WASMTIME_ERROR(trap, Kind)).
%% A WASI exit with a status other than 0.
-define(WASMTIME_EXIT(Status), {error, #{class := exit, kind := exit, status := Status}}).
%% A wrong option, named by its key.
-define(WASMTIME_BADARG(Key), {error, #{kind := badarg, key := Key}}).

-endif.
