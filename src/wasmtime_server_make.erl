%% @private
%% Makes the instance of a server: loads the module, instantiates it, runs the init.
%% Rule: it does so in a process of its own, which may take for ever or be killed; the keeper has the
%% instance before anything of the guest runs, its start section and any init call.
-module(wasmtime_server_make).

-export([start/4, work/4, result/3, stop/1]).
-export_type([maker/0]).

-type maker() :: {pid(), Monitor :: reference()}.

%% @doc A process that makes an instance, which is a row of that id in the keeper's table. It ends with
%% the server.
-spec start(wasmtime_pool_options:source(), map(), ets:table(), pos_integer()) -> maker().
start(Source, Opts, Table, Id) ->
    {_, _} = Maker = spawn_opt(?MODULE, work, [Source, Opts, Table, {Id, self()}], [link, monitor]),
    Maker.

-spec work(wasmtime_pool_options:source(), map(), ets:table(), {pos_integer(), pid()}) -> no_return().
work(Source, Opts, Table, Row) -> exit({?MODULE, make(Source, Opts, Table, Row)}).

%% @doc What a process that ended so has made. Nothing is left of what failed.
-spec result(term(), ets:table(), pos_integer()) ->
          {ok, wasmtime:wasm_module(), wasmtime:instance()} | {error, wasmtime:error()}.
result({?MODULE, Result}, _, _) ->
    Result;
result(Reason, Table, Id) ->
    _ = [spawn(fun() -> wasmtime:destroy(Inst) end) || {_, _, Inst} <- ets:take(Table, Id)],
    Message = wasmtime_error:text("the process that made the instance died: ~0tp", [Reason]),
    {error, wasmtime_error:new(instantiate, init, Message)}.

%% @doc Ends such a process; afterwards it adds nothing to the table.
-spec stop(maker()) -> ok.
stop({Pid, Monitor}) ->
    exit(Pid, kill),
    receive {'DOWN', Monitor, process, Pid, _} -> ok end.

make(Source, Opts, Table, Row) ->
    case wasmtime_pool_options:module(instantiate, Source) of
        {ok, Mod} -> instance(Mod, Opts, Table, Row);
        Error -> Error
    end.

%% What the instance streams goes to the server, as if that had made it.
instance(Mod, #{instance := Instance, init := Init}, Table, {Id, Server}) ->
    case made(wasmtime:prepare(Mod, maps:merge(#{stream => Server}, Instance))) of
        {How, Inst} when How =:= ok; How =:= start ->
            true = ets:insert(Table, {Id, Server, wasmtime_keeper:bare(Inst)}),
            begun(begin_with(How, Init, Inst), Mod, Inst, Table, Id);
        Error ->
            Error
    end.

made({ok, Template}) -> wasmtime_call:make(Template);
made(Error) -> Error.

begun(ok, Mod, Inst, _, _) ->
    {ok, Mod, Inst};
begun(Error, _, Inst, Table, Id) ->
    ok = wasmtime:destroy(Inst),
    true = ets:delete(Table, Id),
    Error.

begin_with(ok, Init, Inst) ->
    init(Init, Inst);
begin_with(start, Init, Inst) ->
    case wasmtime_call:start(Inst, infinity) of
        {ok, _} -> init(Init, Inst);
        Error -> Error
    end.

init([], _) ->
    ok;
init([{Name, Args} | Rest], Inst) ->
    case wasmtime:call(Inst, Name, Args) of
        {ok, _} -> init(Rest, Inst);
        Error -> Error
    end;
init(Fun, Inst) ->
    wasmtime_preinit:run_fun(instantiate, Fun, Inst).
