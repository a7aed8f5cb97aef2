%% @private
%% Exported tables: checks of names and indices. `Name' is `{ok, Binary}' or `error'.
-module(wasmtime_table).

-include("wasmtime_badarg.hrl").
-include("wasmtime_instance.hrl").
-include("wasmtime_text.hrl").

-export([size/2, get/3, set/4, grow/4]).

%% No table reaches this far; what lies beyond need not be told apart.
-define(BEYOND, 16#FFFFFFFFFFFFFFFF).

-type name() :: {ok, binary()} | error.

-spec size(term(), name()) -> {ok, non_neg_integer()} | {error, wasmtime_error:t()}.
size(#wasmtime_instance{ref = Ref}, {ok, Name}) ->
    wasmtime_access:retry(Ref, fun() -> wasmtime_nif:table_size(Ref, Name) end);
size(Inst, Name) -> refused(Inst, Name).

-spec get(term(), name(), term()) -> {ok, term()} | {error, wasmtime_error:t()}.
get(#wasmtime_instance{ref = Ref}, {ok, Name}, Index) when is_integer(Index), Index >= 0 ->
    Far = min(Index, ?BEYOND),
    wasmtime_access:retry(Ref, fun() -> wasmtime_nif:table_get(Ref, Name, Far) end);
get(Inst, Name, _) -> refused(Inst, Name).

-spec set(term(), name(), term(), term()) -> ok | {error, wasmtime_error:t()}.
set(#wasmtime_instance{ref = Ref}, {ok, Name}, Index, Value) when is_integer(Index), Index >= 0 ->
    Far = min(Index, ?BEYOND),
    wasmtime_access:retry(Ref, fun() -> wasmtime_nif:table_set(Ref, Name, Far, Value) end);
set(Inst, Name, _, _) -> refused(Inst, Name).

-spec grow(term(), name(), term(), term()) ->
          {ok, non_neg_integer()} | {error, wasmtime_error:t()}.
grow(#wasmtime_instance{ref = Ref}, {ok, Name}, Count, Value) when is_integer(Count), Count >= 0 ->
    wasmtime_nif:table_grow(Ref, Name, min(Count, ?BEYOND), Value);
grow(Inst, Name, _, _) -> refused(Inst, Name).

refused(#wasmtime_instance{}, error) -> badarg(<<"the name must be " ?TEXT>>);
refused(#wasmtime_instance{}, _) -> badarg(<<"an index or a count must be an integer of 0 or more">>);
refused(_, _) -> ?BADARG(instance).

badarg(Text) ->
    {error, wasmtime_error:badarg(table, Text)}.
