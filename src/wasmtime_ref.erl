%% @doc Types of {@link wasmtime}: types of objects, by name. The functions are the library's own.
%% @end
%% References to objects: checks of indices, elements and names of types.
%% Rule: what is no reference of ours, as the first argument, raises; all else is an error.
-module(wasmtime_ref).

-include("wasmtime_badarg.hrl").
-include("wasmtime_instance.hrl").
-include("wasmtime_text.hrl").

-export([data/1, info/1, struct_get/2, struct_set/3, array_len/1, array_get/2, array_set/3]).
-export([func/2, struct_new/3, array_new/3]).
-export_type([type/0]).

-type type() :: reference()
              | {param | result, func(), pos_integer()}
              | {global | table, iodata()}
              | {field, type(), non_neg_integer()}
              | {element, type()}.
-type func() :: iodata() | {iodata(), iodata()}.
-type result(T) :: {ok, T} | {error, wasmtime_error:t()}.

%% No object reaches this far; what lies beyond need not be told apart.
-define(BEYOND, 16#FFFFFFFFFFFFFFFF).
-define(MAX_U32, 16#FFFFFFFF).
%% How far a type's name may reach into types of types.
-define(MAX_DEPTH, 64).

%% @private
-spec data(reference()) -> result(term()).
data(Ref) ->
    try wasmtime_nif:extern_data(Ref) of
        dirty -> wasmtime_nif:extern_data_dirty(Ref);
        Result -> Result
    catch
        error:badarg -> ?BADARG(ref)
    end.

%% @private
-spec info(reference()) -> map().
info(Ref) ->
    try wasmtime_nif:ref_info(Ref)
    catch error:badarg -> ?BADARG(ref)
    end.

%% @private
-spec struct_get(reference(), term()) -> result(term()).
struct_get(Ref, At) ->
    indexed(Ref, At, fun(Far) -> wasmtime_nif:struct_get(Ref, Far) end).

%% @private
-spec struct_set(reference(), term(), term()) -> ok | {error, wasmtime_error:t()}.
struct_set(Ref, At, Value) ->
    indexed(Ref, At, fun(Far) -> wasmtime_nif:struct_set(Ref, Far, Value) end).

%% @private
-spec array_len(reference()) -> result(non_neg_integer()).
array_len(Ref) ->
    inside(Ref, fun() -> wasmtime_nif:array_len(Ref) end).

%% @private
-spec array_get(reference(), term()) -> result(term()).
array_get(Ref, At) ->
    indexed(Ref, At, fun(Far) -> wasmtime_nif:array_get(Ref, Far) end).

%% @private
-spec array_set(reference(), term(), term()) -> ok | {error, wasmtime_error:t()}.
array_set(Ref, At, Value) ->
    indexed(Ref, At, fun(Far) -> wasmtime_nif:array_set(Ref, Far, Value) end).

indexed(Ref, At, Do) when is_integer(At), At >= 0 ->
    inside(Ref, fun() -> Do(min(At, ?BEYOND)) end);
indexed(Ref, _, _) ->
    %% Raises when it is none.
    #{} = info(Ref),
    badarg(<<"an index must be an integer of 0 or more">>).

inside(Ref, Try) ->
    try wasmtime_access:retry(Ref, Try)
    catch error:badarg -> ?BADARG(ref)
    end.

%% ---- new ones -------------------------------------------------------------------------------

%% @doc A reference to an exported function. `Name' is `{ok, Binary}' or `error'.
%% @private
-spec func(term(), {ok, binary()} | error) -> result(reference()).
func(#wasmtime_instance{ref = Ref} = Inst, {ok, Name}) ->
    Result = wasmtime_access:retry(Ref, fun() -> wasmtime_nif:func_ref(Ref, Name) end),
    wasmtime_initialized:referred(Name, Inst, Result);
func(#wasmtime_instance{}, error) ->
    {error, wasmtime_error:badarg(call, <<"the name must be " ?TEXT>>)};
func(_, _) ->
    ?BADARG(instance).

%% @private
-spec struct_new(term(), term(), term()) -> result(reference()).
struct_new(#wasmtime_instance{ref = Ref}, Type, Fields) when length(Fields) >= 0 ->
    typed(Type, fun(Name) -> wasmtime_nif:struct_new(Ref, Name, Fields) end);
struct_new(#wasmtime_instance{}, _, _) ->
    badarg(<<"the fields must be a list">>);
struct_new(_, _, _) ->
    ?BADARG(instance).

%% @private
-spec array_new(term(), term(), term()) -> result(reference()).
array_new(#wasmtime_instance{ref = Ref}, Type, Elements) ->
    case elements(Elements) of
        true -> typed(Type, fun(Name) -> wasmtime_nif:array_new(Ref, Name, Elements) end);
        false -> badarg(<<"the elements must be a list, {Count, Value} with a count of 0..2^32-1, "
                          "or a binary">>)
    end;
array_new(_, _, _) ->
    ?BADARG(instance).

elements(Elements) when length(Elements) >= 0 -> true;
elements({Count, _}) -> is_integer(Count) andalso Count >= 0 andalso Count =< ?MAX_U32;
elements(Elements) -> is_binary(Elements).

typed(Type, Do) ->
    try type(Type, ?MAX_DEPTH) of
        Name -> Do(Name)
    catch
        throw:no_type -> badarg(wasmtime_error:text("not the name of a type: ~0tp", [Type]))
    end.

%% A type's name as native code takes it.
type(_, 0) -> throw(no_type);
type({Where, Func, At}, _) when Where =:= param; Where =:= result ->
    {Where, function(Func), index(At)};
type({Where, Name}, _) when Where =:= global; Where =:= table -> {Where, name(Name)};
type({field, Of, At}, Depth) -> {field, type(Of, Depth - 1), index(At)};
type({element, Of}, Depth) -> {element, type(Of, Depth - 1)};
type(Ref, _) when is_reference(Ref) ->
    try wasmtime_nif:ref_info(Ref) of
        #{} -> Ref
    catch
        error:badarg -> throw(no_type)
    end;
type(_, _) -> throw(no_type).

function({Module, Name}) -> {name(Module), name(Name)};
function(Name) -> name(Name).

name(Name) ->
    case wasmtime_text:name(Name) of
        {ok, Bin} -> Bin;
        error -> throw(no_type)
    end.

index(At) when is_integer(At), At >= 0, At =< ?MAX_U32 -> At;
index(_) -> throw(no_type).

badarg(Text) ->
    {error, wasmtime_error:badarg(ref, Text)}.
