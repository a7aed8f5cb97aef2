%% @private
%% A caller's side of a server: calls, here or from another node, and requests.
%% Rule: a caller waits no longer than it may, whoever does not answer; and what is no server is told from
%% one that is busy before it is waited for.
-module(wasmtime_server_call).

-export([call/4, ask/2, reach/2, instance/1]).
-export([remote/4, answer/4, is_asked/1]).

%% Ms that a call waits for the server before it looks what that is, and how long it may wait.
-define(PROMPT, 10).
%% Where a server's own timeout is found in its dictionary: it may be suspended.
-define(TIMEOUT, {wasmtime_server, timeout}).
%% Ms that another node may take to say whether a process of its own is a server.
-define(ANSWER, 5_000).

%% @doc As wasmtime_server:call/4, with options that were checked.
-spec call(wasmtime_server:server(), iodata(), [wasmtime:value()], wasmtime:call_options()) ->
          {ok, [wasmtime:value()]} | {error, wasmtime:error()}.
call(Server, Name, Args, Opts) ->
    case wasmtime_name:find(Server) of
        undefined -> gone(Server);
        Pid when is_pid(Pid), node(Pid) =:= node() -> local(Pid, Name, Args, Opts);
        Process -> elsewhere(Process, Name, Args, Opts)
    end.

%% ---- on this node ---------------------------------------------------------------------------

local(Server, Name, Args, Opts) ->
    {Start, Ref} = {erlang:monotonic_time(millisecond), make_ref()},
    try enter(Server, Ref, Opts) of
        {error, _} = Error ->
            Error;
        {Inst, Default} ->
            Limit = maps:get(timeout, Opts, Default),
            Result = wasmtime:call(Inst, Name, Args, Opts#{timeout => left(Limit, Start)}),
            ok = leave(Server, Ref, ending(Result)),
            wasmtime_error:within(Result, Limit)
    catch
        %% The server starts, or is suspended.
        exit:{timeout, _} ->
            ok = leave(Server, Ref, failed),
            late(<<"the call ran out of time while it waited">>);
        exit:_ -> gone(Server)
    end.

%% An atom is more than any number.
enter(Server, Ref, Opts) ->
    Given = maps:get(timeout, Opts, own),
    Prompt = min(Given, ?PROMPT),
    try gen_server:call(Server, {enter, Ref}, Prompt)
    catch exit:{timeout, _} -> again(Given, Prompt, Server, Ref)
    end.

again(Given, Prompt, Server, Ref) ->
    case is_asked(Server) of
        true -> gen_server:call(Server, {enter, Ref}, left(limit(Given, Server), Prompt, 0));
        false -> stranger(Server)
    end.

%% The server's own timeout, unless the call has one.
limit(own, Server) ->
    case process_info(Server, dictionary) of
        {dictionary, Values} -> proplists:get_value(?TIMEOUT, Values, infinity);
        undefined -> infinity
    end;
limit(Given, _) ->
    Given.

late(Message) -> {error, wasmtime_error:new(trap, timeout, Message)}.

leave(Server, Ref, Ending) -> gen_server:cast(Server, {leave, Ref, Ending}).

left(Ms, Start) -> left(Ms, erlang:monotonic_time(millisecond), Start).

left(infinity, _, _) -> infinity;
left(Ms, Now, Start) -> max(0, Ms - (Now - Start)).

ending({ok, _}) -> ok;
ending({error, #{class := Class} = Error}) when Class =:= trap; Class =:= exit -> {trap, Error};
ending({error, _}) -> failed.

%% ---- from another node ----------------------------------------------------------------------

%% A process on the server's node makes the call, and ends with it, or with us. It begins when we say so:
%% one that comes to be after we have given up calls nobody.
elsewhere(Process, Name, Args, Opts) ->
    {Server, Node} = case Process of {_, _} -> Process; _ -> {Process, node(Process)} end,
    {Limit, Start} = {maps:get(timeout, Opts, infinity), erlang:monotonic_time(millisecond)},
    Request = erlang:spawn_request(Node, ?MODULE, remote, [self(), Server, [Name, Args], Opts], [monitor]),
    receive
        {spawn_reply, Request, ok, Pid} ->
            Pid ! {?MODULE, go},
            result(Request, Pid, Process, Limit, Start);
        {spawn_reply, Request, error, _} ->
            gone(Process)
    after Limit ->
        forget(Request, Limit)
    end.

result(Request, Pid, Process, Limit, Start) ->
    receive
        {'DOWN', Request, process, _, {?MODULE, Result}} -> Result;
        {'DOWN', Request, process, _, _} -> gone(Process)
    after left(Limit, Start) ->
        Pid ! {?MODULE, stop},
        forget(Request, Limit)
    end.

forget(Request, Limit) ->
    _ = erlang:spawn_request_abandon(Request)
        orelse receive {spawn_reply, Request, _, _} -> ok after 0 -> ok end,
    true = demonitor(Request, [flush]),
    late(wasmtime_error:text("the call did not end within ~w ms", [Limit])).

%% @doc On the server's node.
-spec remote(pid(), pid() | atom(), [term()], map()) -> ok.
remote(Caller, Server, Call, Opts) ->
    Watch = monitor(process, Caller),
    receive
        {?MODULE, go} -> remote(Caller, Watch, Server, Call, Opts);
        {?MODULE, stop} -> ok;
        {'DOWN', Watch, process, Caller, _} -> ok
    after maps:get(timeout, Opts, infinity) ->
        ok
    end.

remote(Caller, Watch, Server, [Name, Args], Opts) ->
    {Pid, Monitor} = spawn_monitor(?MODULE, answer, [Server, Name, Args, Opts]),
    receive
        {'DOWN', Monitor, process, Pid, Reason} -> exit(Reason);
        {?MODULE, stop} -> exit(Pid, kill), ok;
        {'DOWN', Watch, process, Caller, _} -> exit(Pid, kill), ok
    end.

-spec answer(pid() | atom(), iodata(), [wasmtime:value()], map()) -> no_return().
answer(Server, Name, Args, Opts) -> exit({?MODULE, call(Server, Name, Args, Opts)}).

%% ---- requests -------------------------------------------------------------------------------

%% @doc What the server answers to a request.
-spec ask(wasmtime_server:server(), term()) -> {ok, term()} | {error, wasmtime:error() | term()}.
ask(Server, Request) ->
    case reach(Server, fun(Process) -> gen_server:call(Process, Request, infinity) end) of
        %% Also of a pool.
        {ok, {error, _} = Error} -> Error;
        Result -> Result
    end.

%% @doc The instance of a server on this node.
-spec instance(wasmtime_server:server()) -> {ok, wasmtime:instance()} | {error, wasmtime:error()}.
instance(Server) ->
    case wasmtime_name:find(Server) of
        Pid when is_pid(Pid), node(Pid) =:= node() -> ask(Pid, instance);
        undefined -> gone(Server);
        _ -> {error, wasmtime_error:badarg(call, server, <<"the server runs on another node">>)}
    end.

%% @doc Does something with the process of a server.
-spec reach(wasmtime_server:server(), fun((pid() | {atom(), node()}) -> Answer)) ->
          {ok, Answer} | {error, wasmtime:error()}.
reach(Server, Do) ->
    case wasmtime_name:find(Server) of
        undefined -> gone(Server);
        Process ->
            case is_server(Process) of
                true -> try {ok, Do(Process)} catch exit:_ -> gone(Server) end;
                false -> stranger(Server);
                unknown -> gone(Server)
            end
    end.

is_server(Pid) when node(Pid) =:= node() -> is_asked(Pid);
is_server({Name, Node}) -> there(Node, Name);
is_server(Pid) -> there(node(Pid), Pid).

there(Node, Process) ->
    try erpc:call(Node, ?MODULE, is_asked, [Process], ?ANSWER)
    catch _:_ -> unknown
    end.

%% @doc Whether a process of this node answers such requests, or is gone. A pool says that it is none.
-spec is_asked(pid() | atom()) -> boolean().
is_asked(Name) when is_atom(Name) ->
    Pid = whereis(Name),
    Pid =:= undefined orelse is_asked(Pid);
is_asked(Pid) ->
    case process_info(Pid, dictionary) of
        {dictionary, Values} ->
            Call = proplists:get_value('$initial_call', Values),
            lists:member(Call, [{wasmtime_server, init, 1}, {wasmtime_pool_server, init, 1}]);
        undefined ->
            true
    end.

stranger(Server) ->
    Message = wasmtime_error:text("~0tp is no wasmtime_server", [Server]),
    {error, wasmtime_error:badarg(call, server, Message)}.

gone(Server) ->
    Message = wasmtime_error:text("server ~0tp does not run", [Server]),
    {error, wasmtime_error:new(call, destroyed, Message)}.
