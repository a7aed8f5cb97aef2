%% The exception for a first argument of the wrong sort, which a shell explains; the sorts are those of
%% wasmtime_error:format_error/2. Arguments are not repeated: among them may be a key.
-define(BADARG(Sort),
        erlang:error(badarg, none, [{error_info, #{module => wasmtime_error, cause => Sort}}])).
