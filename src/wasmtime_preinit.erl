%% @private
%% Pre-initialization: compile, instantiate, run the init, take the snapshot.
%% Rule: the instance is gone on every way out, and a failed init leaves no snapshot.
-module(wasmtime_preinit).

-include("wasmtime_instance.hrl").

-export([options/1, plan/1, run/5, run_fun/3]).

%% @doc The complete options: of the compilation, the exports to remove, and those of the instance.
-spec options(term()) -> {ok, {map(), [binary()], {map(), map()}}} | {error, wasmtime_error:t()}.
options(Opts) ->
    case wasmtime_options:preinit(Opts) of
        {ok, Compile, Remove, Rest} ->
            case wasmtime_options:instance(preinit, Rest, module) of
                {ok, #{links := [_ | _]}, _} -> {error, no_links()};
                {ok, Complete, Funs} -> {ok, {Compile, Remove, {Complete, Funs}}};
                Error -> Error
            end;
        Error ->
            Error
    end.

no_links() ->
    Text = <<"links cannot be pre-initialized: their state would stay behind">>,
    (wasmtime_error:new(preinit, unsupported, Text))#{key => links}.

%% @doc The snapshot of a module after Init. `Opts' are complete instance options, `Funs' its
%% imports; `Init' is a list of calls or a function of the instance.
-spec run(binary(), map(), {map(), map()}, [binary()], term()) ->
          {ok, binary()} | {error, wasmtime_error:t()}.
run(Wasm, Compile, Instance, Remove, Init) ->
    case plan(Init) of
        {ok, Plan} ->
            case wasmtime_engine:with_room(fun() -> wasmtime_nif:preinit_begin(Wasm, Compile) end) of
                {ok, Pre, Mod} -> typed(Pre, Mod, Instance, Remove, Plan);
                Error -> Error
            end;
        Error ->
            Error
    end.

typed(Pre, Mod, {Opts, Funs}, Remove, Plan) ->
    case wasmtime_import:check([Mod], Opts, Funs) of
        ok ->
            Table = wasmtime_initialized:new(),
            try run_with(Pre, Mod, {Opts, Funs#{initialized => Table}}, Remove, Plan)
            after wasmtime_initialized:delete(Table)
            end;
        Error ->
            Error
    end.

run_with(Pre, Mod, {Opts, Funs}, Remove, Plan) ->
    case wasmtime_call:instantiate(Mod, Opts, Funs) of
        {ok, Inst} ->
            try snapshot(Pre, Inst, Remove, init(Plan, Inst))
            after wasmtime_call:destroy(Inst)
            end;
        Error ->
            Error
    end.

snapshot(Pre, #wasmtime_instance{ref = Inst0} = Inst, Remove, ok) ->
    Ran = [<<"_initialize">> || wasmtime_initialized:ran(Inst)],
    wasmtime_nif:preinit_finish(Pre, Inst0, Ran, Remove);
snapshot(_, _, _, Error) ->
    Error.

%% ---- the init -------------------------------------------------------------------------------

%% @doc What an init says is to be done, checked.
-spec plan(term()) -> {ok, [{binary(), [term()]}] | function()} | {error, wasmtime_error:t()}.
plan(Init) when is_function(Init, 1) -> {ok, Init};
plan(Init) when length(Init) >= 0 -> plan(Init, []);
plan(_) -> bad_plan("init must be a list of calls or a function of the instance", []).

plan([], Calls) ->
    {ok, lists:reverse(Calls)};
plan([Call | Rest], Calls) ->
    {Name, Args} = case Call of {_, _} -> Call; _ -> {Call, []} end,
    case wasmtime_text:name(Name) of
        {ok, Bin} when length(Args) >= 0 -> plan(Rest, [{Bin, Args} | Calls]);
        _ -> bad_plan("init call ~0tp must be a name or {Name, Args}", [Call])
    end.

bad_plan(Format, Args) ->
    {error, wasmtime_error:badarg(preinit, wasmtime_error:text(Format, Args))}.

init([], _) ->
    ok;
init([{Name, Args} | Rest], Inst) ->
    case wasmtime_call:call(Inst, Name, Args, #{timeout => infinity, fuel => undefined}) of
        {ok, _} -> init(Rest, Inst);
        Error -> Error
    end;
init(Fun, Inst) ->
    run_fun(preinit, Fun, Inst).

%% @doc Calls an init function; whatever it does but returning `ok' is an error of kind `init'.
-spec run_fun(wasmtime_error:class(), fun((#wasmtime_instance{}) -> term()), #wasmtime_instance{}) ->
          ok | {error, wasmtime_error:t()}.
run_fun(Class, Fun, Inst) ->
    try Fun(Inst) of
        ok -> ok;
        Other -> failed(Class, "returned ~0tp instead of ok", Other)
    catch
        error:Reason -> failed(Class, "raised ~0tp", Reason);
        exit:Reason -> failed(Class, "exited with ~0tp", Reason);
        throw:Reason -> failed(Class, "threw ~0tp", Reason)
    end.

failed(Class, Format, Reason) ->
    Message = wasmtime_error:text("the init function " ++ Format, [Reason]),
    {error, wasmtime_error:new(Class, init, Message)}.
