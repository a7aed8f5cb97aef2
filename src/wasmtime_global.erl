%% @private
%% Exported globals: checks of names. `Name' is `{ok, Binary}' or `error'.
-module(wasmtime_global).

-include("wasmtime_badarg.hrl").
-include("wasmtime_instance.hrl").
-include("wasmtime_text.hrl").

-export([get/2, set/3]).

-type name() :: {ok, binary()} | error.

-spec get(term(), name()) -> {ok, term()} | {error, wasmtime_error:t()}.
get(#wasmtime_instance{ref = Ref}, {ok, Name}) ->
    wasmtime_access:retry(Ref, fun() -> wasmtime_nif:global_get(Ref, Name) end);
get(#wasmtime_instance{}, error) -> bad_name();
get(_, _) -> ?BADARG(instance).

-spec set(term(), name(), term()) -> ok | {error, wasmtime_error:t()}.
set(#wasmtime_instance{ref = Ref}, {ok, Name}, Value) ->
    wasmtime_access:retry(Ref, fun() -> wasmtime_nif:global_set(Ref, Name, Value) end);
set(#wasmtime_instance{}, error, _) -> bad_name();
set(_, _, _) -> ?BADARG(instance).

bad_name() ->
    {error, wasmtime_error:badarg(global, <<"the name must be " ?TEXT>>)}.
