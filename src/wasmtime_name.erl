%% @private
%% Names of processes, as gen_server takes them.
-module(wasmtime_name).

-export([find/1, start_link/2, registers/1, unregister/1]).

%% @doc The process of that name: `undefined' when there is none, `{Name, Node}' when it is another
%% node's to say. What cannot be a name raises `badarg'.
-spec find(term()) -> pid() | undefined | {atom(), node()}.
find(Pid) when is_pid(Pid) -> Pid;
find(Name) when is_atom(Name) -> registered(erlang:whereis(Name));
find({local, Name}) when is_atom(Name) -> find(Name);
find({global, Name}) -> global:whereis_name(Name);
find({via, Module, Name}) when is_atom(Module) -> via(Module, Name);
find({Name, Node}) when is_atom(Name), Node =:= node() -> find(Name);
find({Name, Node} = Remote) when is_atom(Name), is_atom(Node) -> Remote;
find(_) -> error(badarg).

via(Module, Name) ->
    _ = code:ensure_loaded(Module),
    erlang:function_exported(Module, whereis_name, 1) orelse error(badarg),
    registered(Module:whereis_name(Name)).

%% @doc Whether a module does what is asked of one in `{via, Module, Name}'.
-spec registers(module()) -> boolean().
registers(Module) ->
    _ = code:ensure_loaded(Module),
    lists:all(fun({Name, Arity}) -> erlang:function_exported(Module, Name, Arity) end,
              [{register_name, 2}, {unregister_name, 1}, {whereis_name, 1}, {send, 2}]).

%% @doc Starts a gen_server under the name in its options, which is what it gets.
-spec start_link(module(), map()) -> {ok, pid()} | {error, term()}.
start_link(Module, #{name := Name} = Opts) ->
    Started = case Name of
        none -> gen_server:start_link(Module, Opts, []);
        _ -> gen_server:start_link(Name, Module, Opts, [])
    end,
    case Started of
        ignore -> {error, ignore};
        _ -> Started
    end.

%% @doc Takes the name in a process's options away from it.
-spec unregister(term()) -> ok.
unregister(Name) ->
    _ = case Name of
        {local, Local} -> catch erlang:unregister(Local);
        {global, Global} -> global:unregister_name(Global);
        {via, Module, Via} -> Module:unregister_name(Via);
        none -> true
    end,
    ok.

registered(Pid) when is_pid(Pid) -> Pid;
registered(_) -> undefined.
