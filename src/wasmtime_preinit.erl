%% @private
%% Pre-initialization: compile, instantiate, run the init, take the snapshot.
%% Rule: the instance is gone on every way out, and a failed init leaves no snapshot.
-module(wasmtime_preinit).

-include("wasmtime_instance.hrl").

-export([run/5, run_fun/3]).

%% @doc The snapshot of a module after Init. `Opts' are complete instance options, `Funs' its
%% imports; `Init' is a list of calls or a function of the instance.
-spec run(binary(), map(), {map(), map()}, [binary()], term()) ->
          {ok, binary()} | {error, wasmtime_error:t()}.
run(Wasm, Compile, Instance, Remove, Init) ->
    case plan(Init) of
        {ok, Plan} ->
            case wasmtime_nif:preinit_begin(Wasm, Compile) of
                {ok, Pre, Mod} -> run(Pre, Mod, Instance, Remove, Plan, atomics:new(1, []));
                Error -> Error
            end;
        Error ->
            Error
    end.

run(Pre, Mod, {Opts, Funs}, Remove, Plan, Flag) ->
    case wasmtime_call:instantiate(Mod, Opts, Funs#{initialized => Flag}) of
        {ok, Inst} ->
            try snapshot(Pre, Inst, Remove, init(Plan, Inst), Flag)
            after wasmtime_call:destroy(Inst)
            end;
        Error ->
            Error
    end.

snapshot(Pre, #wasmtime_instance{ref = Inst0}, Remove, ok, Flag) ->
    Ran = [<<"_initialize">> || atomics:get(Flag, 1) =:= 1],
    wasmtime_nif:preinit_finish(Pre, Inst0, Ran, Remove);
snapshot(_, _, _, Error, _) ->
    Error.

%% ---- the init -------------------------------------------------------------------------------

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
