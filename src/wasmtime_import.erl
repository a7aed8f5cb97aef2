%% @doc Types of {@link wasmtime}: types of host functions. The functions are the library's own.
%% @end
%% Host functions with a type: made from an Erlang function, or from another instance's export.
%% Rule: such a function is an ordinary host function that also tells its type, so that instantiation
%% can compare it with what the module imports.
-module(wasmtime_import).

-include("wasmtime_instance.hrl").

-export([typed/2, export/2, check/3]).
-export_type([type/0]).

-type value_type() :: i32 | i64 | f32 | f64 | v128 | externref | funcref | anyref | eqref | i31ref
                    | structref | arrayref | exnref.
-type type() :: {[value_type()], value_type() | [value_type()]}.
%% Parameters; and one result, or the list of results.

%% @doc A host function of that type, from one that takes the arguments and gives the result itself,
%% or the list of results. `error' when that is no type.
%% @private
-spec typed(term(), fun(([term()]) -> term())) -> {ok, fun((tuple(), [term()]) -> term())} | error.
typed({Params, Results}, Fun) ->
    try {texts(Params), texts(listed(Results))} of
        Type -> {ok, with_type(Type, fun(_, Args) -> results(Results, Fun(Args)) end)}
    catch
        throw:no_type -> error
    end;
typed(_, _) ->
    error.

listed(Results) when is_list(Results) -> Results;
listed(Result) -> [Result].

results([], _) -> {ok, []};
results(Results, Values) when is_list(Results), length(Values) >= 0 -> {ok, Values};
results(Results, Value) when is_list(Results) -> {?MODULE, Value};
results(_, Value) -> {ok, [Value]}.

texts(Types) when length(Types) >= 0 -> [text(Type) || Type <- Types];
texts(_) -> throw(no_type).

%% The names that native code has for the types.
text(externref) -> <<"(ref null extern)">>;
text(funcref) -> <<"(ref null func)">>;
text(anyref) -> <<"(ref null any)">>;
text(eqref) -> <<"(ref null eq)">>;
text(i31ref) -> <<"(ref null i31)">>;
text(structref) -> <<"(ref null struct)">>;
text(arrayref) -> <<"(ref null array)">>;
text(exnref) -> <<"(ref null exn)">>;
text(Number) when Number =:= i32; Number =:= i64; Number =:= f32; Number =:= f64; Number =:= v128 ->
    atom_to_binary(Number);
text(_) ->
    throw(no_type).

%% @doc A host function that calls the export of an instance, in the process that serves it, for as long as
%% its own call lasts. An error of that call becomes the host function's, with its message.
%% @private
-spec export(#wasmtime_instance{}, binary()) ->
          {ok, fun((tuple(), [term()]) -> term())} | {error, wasmtime_error:t()}.
export(#wasmtime_instance{ref = Inst0} = Inst, Name) ->
    case wasmtime_nif:instance_function(Inst0, Name) of
        undefined ->
            Text = wasmtime_error:text("no exported function \"~ts\"", [Name]),
            {error, wasmtime_error:new(call, unknown_export, Text)};
        Type ->
            {ok, with_type(Type, fun(Outer, Args) -> forward(Outer, Inst, Name, Args) end)}
    end.

forward(Outer, Inst, Name, Args) ->
    case call(Outer, Inst, Name, Args) of
        {ok, _} = Result -> Result;
        {error, #{class := Class, kind := Kind, message := Message}} ->
            {error, wasmtime_error:text("~ts/~ts: ~ts", [Class, Kind, Message])}
    end.

%% Whoever calls the function without being a host has no call that could end.
call(#wasmtime_instance{} = Outer, Inst, Name, Args) -> wasmtime_call:inside(Outer, Inst, Name, Args);
call(_, Inst, Name, Args) -> wasmtime_call:call(Inst, Name, Args, #{timeout => infinity, fuel => undefined}).

%% Nobody but `type_of' calls it with this module's name instead of arguments.
with_type(Type, Fun) ->
    fun(type, ?MODULE) -> Type;
       (Inst, Args) -> Fun(Inst, Args)
    end.

type_of(Fun) ->
    case {erlang:fun_info(Fun, module), erlang:fun_info(Fun, type)} of
        {{module, ?MODULE}, {type, local}} -> {ok, Fun(type, ?MODULE)};
        _ -> none
    end.

%% @doc Whether the functions that tell their types have those that the modules import.
%% @private
-spec check([reference()], map(), map()) -> ok | {error, wasmtime_error:t()}.
check(Mods, #{links := Links}, Funs) ->
    %% What links serve is not asked of the host.
    Typed = [{Key, Type} || {{Module, _} = Key, Fun} <- maps:to_list(Funs), {ok, Type} <- [type_of(Fun)],
                            not lists:keymember(Module, 1, Links)],
    check(Typed, Mods ++ [Mod || {_, Mod} <- Links, Typed =/= []]).

check([], _) ->
    ok;
check(Typed, Mods) ->
    Wanted = lists:append([wasmtime_nif:module_function_imports(Mod) || Mod <- Mods]),
    case [{Key, Want, Type} || {Key, Want} <- Wanted, {K, Type} <- Typed, K =:= Key, Type =/= Want] of
        [] -> ok;
        [{{Module, Name}, Want, Type} | _] ->
            Text = wasmtime_error:text("the import ~ts.~ts is ~ts, and what was given is ~ts",
                                       [Module, Name, show(Want), show(Type)]),
            {error, wasmtime_error:new(link, incompatible_import, Text)}
    end.

show({Params, Results}) ->
    [show_list(Params), " -> ", show_list(Results)].

show_list(Types) ->
    ["(", lists:join(", ", Types), ")"].
