%% A gen_server that owns one instance, which others call. The guest never runs in it: a caller runs
%% its own call, and the instance lines calls up.
%% Rule: it runs no guest except to start, so it always answers; and no handle is given out before
%% the keeper has one, too.

%% @doc A supervised instance with a name.
%%
%% {@link call/3} runs in the calling process, host functions included: one call runs at a time, the
%% others wait in the order of their coming, and a caller that dies ends its own call only. A caller on
%% another node has it run by a process on the server's node. A trap leaves the instance as it is, as
%% with {@link wasmtime:call/3}; with `on_trap => stop' the server stops, and its supervisor starts it
%% with a fresh instance. However the server ends, its instance is destroyed, and calls that run or wait
%% end with class `call', kind `destroyed'. See docs/pool.md.
%%
%% A first argument that cannot be a server is a `badarg' exception; one that does not run answers
%% class `call', kind `destroyed'.
-module(wasmtime_server).
-behaviour(gen_server).

-export([child_spec/1, start_link/1, stop/1]).
-export([call/3, call/4, instance/1, interrupt/1, info/1, reset/1, swap/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).
-export([remote/4, answer/4]).
-export_type([server/0, options/0, info/0]).

-type server() :: pid() | atom() | {local, atom()} | {atom(), node()} | {global, term()}
                | {via, module(), term()}.
-type options() :: wasmtime_pool_options:server().
-type info() :: #{in_flight | calls | failed | fresh := non_neg_integer()}.

%% Ms that a supervisor waits: ending an instance takes no longer than a guest's step.
-define(SHUTDOWN, 5_000).

-record(state, {
    opts :: map(),
    module :: wasmtime:wasm_module() | none,
    %% What the keeper destroys, by id; the last is the one that new calls get.
    table :: ets:table(),
    id = 0 :: non_neg_integer(),
    inst :: wasmtime:instance() | none,
    %% Calls under way: the instance of each and the monitor of its process.
    calls = #{} :: #{reference() => {non_neg_integer(), reference()}},
    monitors = #{} :: #{reference() => reference()},
    counts = #{calls => 0, failed => 0} :: #{calls | failed => non_neg_integer()}
}).

%% ---- life -----------------------------------------------------------------------------------

%% @doc A child specification for a supervisor; its id is the server's name. `{wasmtime_server, Opts}'
%% does the same among the children of an Elixir supervisor. Options as {@link start_link/1}.
-spec child_spec(options() | [{atom(), term()}]) -> supervisor:child_spec().
child_spec(Opts) ->
    #{id => wasmtime_pool_options:spec_id(?MODULE, Opts),
      start => {?MODULE, start_link, [Opts]},
      restart => permanent,
      shutdown => ?SHUTDOWN,
      type => worker,
      modules => [?MODULE]}.

%% @doc Starts a server with a fresh instance. Options, a map or a list of pairs:
%%
%% `module' (needed): a compiled module, or `{file, Path}' or `{file, Path, LoadOptions}' for an
%% artifact that each start loads anew. `instance': options of {@link wasmtime:instantiate/2} (`#{}').
%% `init': calls that a fresh instance begins with, names or `{Name, Args}', or a function of the
%% instance that returns `ok' (none). `name': an atom, `{local, Atom}', `{global, Term}' or
%% `{via, Module, Term}' (none). `timeout': ms of a call that names none, its wait included, or
%% `infinity' (`infinity'). `on_trap': `keep' (the default), or `stop' the server when a call ends with
%% class `trap' or `exit', or its caller dies.
%%
%% Errors: class `instantiate', kind `badarg' with `key'; those of loading the module, of
%% {@link wasmtime:instantiate/2} and of the `init' calls, which are also the exit reason of the process
%% that failed to start; `{already_started, Pid}'.
-spec start_link(options() | [{atom(), term()}]) ->
          {ok, pid()} | {error, wasmtime:error() | {already_started, pid()} | term()}.
start_link(Given) ->
    case wasmtime_pool_options:server(Given) of
        {ok, Opts} -> wasmtime_name:start_link(?MODULE, Opts);
        Error -> Error
    end.

%% @doc Ends a server that no supervisor would start again.
-spec stop(server()) -> ok | {error, wasmtime:error()}.
stop(Server) ->
    case reach(Server, fun(Process) -> gen_server:stop(Process, normal, infinity) end) of
        {ok, _} -> ok;
        {error, _} = Error -> Error
    end.

%% ---- calls ----------------------------------------------------------------------------------

%% @equiv call(Server, Name, Args, #{})
-spec call(server(), iodata(), [wasmtime:value()]) ->
          {ok, [wasmtime:value()]} | {error, wasmtime:error()}.
call(Server, Name, Args) -> call(Server, Name, Args, #{}).

%% @doc Calls an export of the server's instance. Options and errors are those of
%% {@link wasmtime:call/4}; `timeout' covers waiting for other calls as well, and ends the guest's call
%% with the wait. A host function may call its own server again: that call runs inside the one that
%% waits for it.
-spec call(server(), iodata(), [wasmtime:value()], wasmtime:call_options()) ->
          {ok, [wasmtime:value()]} | {error, wasmtime:error()}.
call(Server, Name, Args, Opts) ->
    case {wasmtime_name:find(Server), wasmtime_options:call(Opts)} of
        {undefined, {ok, _}} -> gone(Server);
        {Pid, {ok, _}} when is_pid(Pid), node(Pid) =:= node() -> local(Pid, Name, Args, Opts);
        {Process, {ok, _}} -> elsewhere(Process, Name, Args, Opts);
        {_, Error} -> Error
    end.

local(Server, Name, Args, Opts) ->
    {Start, Ref} = {erlang:monotonic_time(millisecond), make_ref()},
    try gen_server:call(Server, {enter, Ref}, maps:get(timeout, Opts, infinity)) of
        {Inst, Default} ->
            Result = wasmtime:call(Inst, Name, Args, left(Opts, Default, Start)),
            ok = gen_server:cast(Server, {leave, Ref, ending(Result)}),
            Result
    catch
        %% The server makes a fresh instance.
        exit:{timeout, _} ->
            ok = gen_server:cast(Server, {leave, Ref, failed}),
            {error, wasmtime_error:new(trap, timeout, <<"the call ran out of time while it waited">>)};
        exit:_ ->
            gone(Server)
    end.

left(Opts, Default, Start) ->
    case maps:get(timeout, Opts, Default) of
        infinity -> Opts#{timeout => infinity};
        Ms -> Opts#{timeout => max(0, Ms - (erlang:monotonic_time(millisecond) - Start))}
    end.

ending({ok, _}) -> ok;
ending({error, #{class := Class} = Error}) when Class =:= trap; Class =:= exit -> {trap, Error};
ending({error, _}) -> failed.

%% A process on the server's node makes the call, and ends with it, or with us.
elsewhere(Process, Name, Args, Opts) ->
    Server = case Process of {Registered, _} -> Registered; _ -> Process end,
    Node = case Process of {_, Named} -> Named; _ -> node(Process) end,
    {_, Monitor} = spawn_monitor(Node, ?MODULE, remote, [self(), Server, [Name, Args], Opts]),
    receive
        {'DOWN', Monitor, process, _, {?MODULE, Result}} -> Result;
        {'DOWN', Monitor, process, _, _} -> gone(Process)
    end.

%% @private
-spec remote(pid(), pid() | atom(), [term()], map()) -> no_return().
remote(Caller, Server, [Name, Args], Opts) ->
    Watch = monitor(process, Caller),
    {Pid, Monitor} = spawn_monitor(?MODULE, answer, [Server, Name, Args, Opts]),
    receive
        {'DOWN', Monitor, process, Pid, Reason} -> exit(Reason);
        {'DOWN', Watch, process, Caller, _} -> exit(Pid, kill)
    end.

%% @private
-spec answer(pid() | atom(), iodata(), [wasmtime:value()], map()) -> no_return().
answer(Server, Name, Args, Opts) -> exit({?MODULE, call(Server, Name, Args, Opts)}).

%% @doc The instance, for everything that {@link wasmtime} does with one: memory, output. It is the
%% server's: do not destroy it, and do not keep it, for a reset or a restart makes another.
-spec instance(server()) -> {ok, wasmtime:instance()} | {error, wasmtime:error()}.
instance(Server) ->
    case wasmtime_name:find(Server) of
        Pid when is_pid(Pid), node(Pid) =:= node() -> ask(Pid, instance, fun(Inst) -> {ok, Inst} end);
        undefined -> gone(Server);
        _ -> {error, wasmtime_error:badarg(call, server, <<"the server runs on another node">>)}
    end.

%% @doc Ends the call that runs with the trap `interrupt'; others follow.
-spec interrupt(server()) -> ok | not_running | {error, wasmtime:error()}.
interrupt(Server) -> ask(Server, interrupt, fun(Answer) -> Answer end).

%% @doc `in_flight': calls that run or wait; since the start: `calls' that ended, `failed' ones among
%% them, and `fresh' instances that were made.
-spec info(server()) -> {ok, info()} | {error, wasmtime:error()}.
info(Server) -> ask(Server, info, fun(Info) -> {ok, Info} end).

%% @doc Makes a fresh instance. Calls that run or wait finish on the old one, which is destroyed then;
%% later ones get the fresh one. An error of making it leaves everything as it is.
-spec reset(server()) -> ok | {error, wasmtime:error() | term()}.
reset(Server) -> ask(Server, reset, fun(Answer) -> Answer end).

%% @doc As {@link reset/1}, with another module: a compiled one, `{file, Path}' or
%% `{file, Path, LoadOptions}'. A supervisor's restart takes the module of the child specification.
-spec swap(server(), wasmtime_pool_options:source()) -> ok | {error, wasmtime:error() | term()}.
swap(Server, Source) -> ask(Server, {swap, Source}, fun(Answer) -> Answer end).

ask(Server, Request, Then) ->
    case reach(Server, fun(Process) -> gen_server:call(Process, Request, infinity) end) of
        {ok, Answer} -> Then(Answer);
        {error, _} = Error -> Error
    end.

reach(Server, Do) ->
    case wasmtime_name:find(Server) of
        undefined -> gone(Server);
        Process -> try {ok, Do(Process)} catch exit:_ -> gone(Server) end
    end.

gone(Server) ->
    Message = wasmtime_error:text("server ~0tp does not run", [Server]),
    {error, wasmtime_error:new(call, destroyed, Message)}.

%% ---- the server -----------------------------------------------------------------------------

%% @private
-spec init(map()) -> {ok, #state{}} | {stop, term()}.
init(#{module := Source} = Opts) ->
    process_flag(trap_exit, true),
    {ok, Table} = wasmtime_keeper:start_link(fun() -> ok end),
    case with_module(Source, #state{opts = Opts, module = none, table = Table, inst = none}) of
        {ok, State} -> {ok, State};
        {error, Error} -> {stop, Error}
    end.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_, #state{table = Table, inst = Inst}) ->
    ok = wasmtime_keeper:destroy_all(Table),
    wasmtime:destroy(Inst).

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call({enter, Ref}, {Pid, _}, #state{inst = Inst, id = Id, opts = Opts} = S) ->
    #state{calls = Calls, monitors = Monitors} = S,
    Monitor = monitor(process, Pid),
    {reply, {Inst, map_get(timeout, Opts)},
     S#state{calls = Calls#{Ref => {Id, Monitor}}, monitors = Monitors#{Monitor => Ref}}};
handle_call(instance, _, #state{inst = Inst} = S) ->
    {reply, Inst, S};
handle_call(interrupt, _, #state{inst = Inst} = S) ->
    {reply, wasmtime:interrupt(Inst), S};
handle_call(info, _, #state{calls = Calls, counts = Counts, id = Fresh} = S) ->
    {reply, Counts#{in_flight => map_size(Calls), fresh => Fresh}, S};
handle_call(reset, _, S) ->
    changed(fresh(S), S);
handle_call({swap, Source}, _, S) ->
    changed(with_module(Source, S), S);
handle_call(_, _, S) ->
    {reply, {error, wasmtime_error:badarg(call, <<"no request of a wasmtime_server">>)}, S}.

changed({ok, S}, #state{id = Old}) -> {reply, ok, retired(Old, S)};
changed(Error, S) -> {reply, Error, S}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_cast({leave, Ref, Ending}, S) ->
    leave(Ref, Ending, S);
handle_cast(_, S) ->
    {noreply, S}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({'DOWN', Monitor, process, _, Reason}, #state{monitors = Monitors} = S) ->
    leave(maps:get(Monitor, Monitors, none), {trap, {caller_died, Reason}}, S);
handle_info({'EXIT', _, Reason}, #state{table = Table} = S) ->
    case ets:info(Table, owner) of
        undefined -> {stop, Reason, S};
        _ -> {noreply, S}
    end;
handle_info(_, S) ->
    {noreply, S}.

leave(Ref, Ending, #state{calls = Calls, monitors = Monitors} = S) ->
    case maps:take(Ref, Calls) of
        {{Id, Monitor}, Rest} ->
            true = demonitor(Monitor, [flush]),
            Next = S#state{calls = Rest, monitors = maps:remove(Monitor, Monitors)},
            ended(Ending, Id, retired(Id, counted(Ending, Next)));
        error ->
            {noreply, S}
    end.

%% A trap of an instance that was replaced meanwhile is of no more interest.
ended({trap, Why}, Id, #state{id = Id, opts = #{on_trap := stop}} = S) ->
    {stop, {wasmtime_trap, Why}, S};
ended(_, _, S) ->
    {noreply, S}.

counted(ok, S) -> count(calls, S);
counted(_, S) -> count(failed, count(calls, S)).

count(What, #state{counts = Counts} = S) ->
    S#state{counts = maps:update_with(What, fun(N) -> N + 1 end, Counts)}.

%% Ends an instance that is not the present one, once no call of it is left.
retired(Id, #state{id = Id} = S) ->
    S;
retired(Id, #state{calls = Calls, table = Table} = S) ->
    case lists:keymember(Id, 1, maps:values(Calls)) of
        true ->
            S;
        false ->
            [{Id, _, Old}] = ets:take(Table, Id),
            _ = spawn(fun() -> wasmtime:destroy(Old) end),
            S
    end.

%% ---- instances ------------------------------------------------------------------------------

with_module(Source, S) ->
    case wasmtime_pool_options:module(instantiate, Source) of
        {ok, Mod} -> fresh(S#state{module = Mod});
        Error -> Error
    end.

fresh(#state{module = Mod, opts = #{instance := Instance, init := Init}, id = Id, table = Table} = S) ->
    case wasmtime:instantiate(Mod, Instance) of
        {ok, Inst} ->
            true = ets:insert(Table, {Id + 1, self(), wasmtime_keeper:bare(Inst)}),
            begun(run_init(Init, Inst), S#state{inst = Inst, id = Id + 1});
        Error ->
            Error
    end.

begun(ok, S) ->
    {ok, S};
begun(Error, #state{inst = Inst, id = Id, table = Table}) ->
    true = ets:delete(Table, Id),
    ok = wasmtime:destroy(Inst),
    Error.

run_init([], _) ->
    ok;
run_init([{Name, Args} | Rest], Inst) ->
    case wasmtime:call(Inst, Name, Args) of
        {ok, _} -> run_init(Rest, Inst);
        Error -> Error
    end;
run_init(Fun, Inst) ->
    wasmtime_preinit:run_fun(instantiate, Fun, Inst).
