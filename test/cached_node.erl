%% Real nodes of the operating system: each runs one function and says what came of it.
%% Rule: a node ends with the port that it talks through.
-module(cached_node).

-export([start/1, start/2, main/0, result/1, kill/1]).

%% Starts a node that runs a function.
start(Call) -> start(Call, "").

%% The same, after some commands of the shell.
start(Call, Shell) ->
    Paths = [filename:dirname(code:which(Module)) || Module <- [wasmtime, ?MODULE]],
    Args = ["-noshell", "-noinput", "-pa" | Paths] ++ ["-s", atom_to_list(?MODULE), "main"],
    Erl = os:find_executable("erl"),
    Term = binary_to_list(base64:encode(term_to_binary(Call))),
    Command = [Shell, "exec \"$0\" \"$@\""],
    open_port({spawn_executable, "/bin/sh"},
              [{args, ["-c", lists:flatten(Command), Erl | Args]}, {env, [{"CACHED_CALL", Term}]},
               exit_status, binary, stderr_to_stdout, in]).

%% In the node.
main() ->
    {Module, Function, Args} = binary_to_term(base64:decode(os:getenv("CACHED_CALL"))),
    Result = try {ok, apply(Module, Function, Args)}
             catch Class:Reason:Stack -> {Class, Reason, Stack}
             end,
    io:format("~nresult:~s~n", [base64:encode(term_to_binary(Result))]),
    halt(0).

%% What the function answered.
result(Port) -> result(Port, <<>>).

result(Port, Output) ->
    receive
        {Port, {data, Data}} -> result(Port, <<Output/binary, Data/binary>>);
        {Port, {exit_status, Status}} -> answer(binary:split(Output, <<"\nresult:">>), Status)
    end.

answer([_, Rest], 0) ->
    [Term | _] = binary:split(Rest, <<"\n">>),
    case binary_to_term(base64:decode(Term)) of
        {ok, Result} -> Result;
        Raised -> error({node_raised, Raised})
    end;
answer(Output, Status) ->
    error({node_died, Status, Output}).

%% Kills a node where it stands.
kill(Port) ->
    {os_pid, Pid} = erlang:port_info(Port, os_pid),
    [] = os:cmd("kill -9 " ++ integer_to_list(Pid)),
    receive {Port, {exit_status, _}} -> ok end.
